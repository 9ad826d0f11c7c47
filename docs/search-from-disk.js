// Browsers load no worker from disk. There, the search runs in a hidden frame of the page instead.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      (document.body || document.documentElement).append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.hand(this, data);
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = () => {
        this.ready = true;
        for (const data of this.waiting) this.hand(inside, data);
      };
      script.onerror = () => this.onerror?.(new Event("error"));
      inside.document.documentElement.append(script);
    }
    postMessage(data) {
      this.ready ? this.hand(this.frame.contentWindow, data) : this.waiting.push(data);
    }
    hand(to, data) {
      const copy = structuredClone(data); // as between a page and a worker: the search changes what it is asked
      setTimeout(() => to.onmessage?.({ data: copy }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
