// The front of a shim in JavaScript: takes a client's request over HTTP, hands it to a function, answers with its JSON.
// The program's arguments: PORT BACK. What the function throws becomes HTTP 502 with the words of the error.
import http from 'node:http';

export const [port, back, option] = process.argv.slice(2);

export function serve(handle) {
  const server = http.createServer((request, response) => {
    let raw = '';
    request.on('data', piece => (raw += piece));
    request.on('end', async () => {
      let reply, status = 200;
      try {
        reply = await handle(JSON.parse(raw || '{}'), request.url);
      } catch (error) {
        status = 502;
        reply = { error: { type: error.name, message: String(error.message ?? error).slice(0, 1000) } };
      }
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(reply));
    });
  });
  server.listen(Number(port), '127.0.0.1');
}
