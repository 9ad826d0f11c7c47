"""What a notebook shows of a result: verdicts, tables and one picture, nothing that runs, nothing that a name could
smuggle in.
"""

from base64 import b64decode
from html.parser import HTMLParser

from context_bench import evaluate
from context_bench.metrics import CompressionRatio, MeanScore

HOSTILE = '<img src=x onerror=alert(1)>"</script>\x1b[31m'


class Keeps:
    def __init__(self, name, share):
        self.name, self.share = name, share

    def process(self, example):
        kept = example["context"][: int(len(example["context"]) * self.share)]
        return {"context": kept, "response": "word" if self.share > 0.5 else "no"}


class Right:
    name = "right"
    fields = ("right",)

    def score(self, original, processed):
        return {"right": float(processed["response"] == original["answer"])}


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def shown(*systems):
    examples = [{"id": i, "context": "some words that are a context " * 5, "answer": "word"} for i in range(12)]
    metrics = [MeanScore(score_field="right"), CompressionRatio()]
    return evaluate(list(systems), examples, [Right()], metrics, progress=False)._repr_html_()


def test_verdicts_then_tables_then_one_picture_and_no_script():
    html = shown(Keeps("full", 1.0), Keeps(HOSTILE, 0.4))
    tags = Tags()
    tags.feed(html)
    names = [tag for tag, _ in tags.found]
    assert "script" not in names
    assert not any(attribute.startswith("on") for _, attributes in tags.found for attribute in attributes)
    assert "\x1b" not in html
    assert html.index("In the words of statistics") < html.index("<table") < html.index("<img alt=")
    images = [attributes for tag, attributes in tags.found if tag == "img"]
    assert len(images) == 1
    head, _, data = images[0]["src"].partition("base64,")
    assert head == "data:image/svg+xml;"
    drawn = b64decode(data).decode()
    assert "<svg" in drawn[:60]
    assert "<img" not in drawn
    assert "<script" not in drawn


def test_one_system_has_nothing_to_be_compared_with():
    html = shown(Keeps("alone", 1.0))
    assert "<table" in html
    assert "<img" not in html
