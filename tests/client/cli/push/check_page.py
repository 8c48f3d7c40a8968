"""Checks a page of `warpcall push --html`: check_page.py FILE prints the page's text, and ends with status 1
and a line for each thing that a page of it must not have."""

import html.parser
import re
import sys

ELEMENTS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "pre", "table", "tr", "th", "td",
            "svg", "rect", "line", "polyline", "polygon", "circle", "path", "text"}
VOID = {"meta", "rect", "line", "polyline", "polygon"}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "class", "colspan", "xmlns", "width", "height", "viewbox",
              "font-family", "x", "y", "x1", "y1", "x2", "y2", "r", "d", "points", "fill", "fill-opacity", "stroke",
              "stroke-width", "stroke-dasharray", "transform", "font-size", "font-weight", "text-anchor",
              "paint-order"}
SVG_NAME = "http://www.w3.org/2000/svg"
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.findings, self.open, self.words, self.policies = [], [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ELEMENTS:
            self.findings.append(f"element {tag}")
        for name, value in attributes:
            if name not in ATTRIBUTES:
                self.findings.append(f"attribute {name} of {tag}")
            if value and re.search(r"(?i)url|//|:", value) and value != SVG_NAME and name != "content":
                self.findings.append(f"reference {value}")
        named = dict(attributes)
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policies.append(named["content"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.findings.append(f"end of {tag}")

    def handle_data(self, data):
        if self.open and self.open[-1] == "style" and re.search(r"url|@import|//", data):
            self.findings.append("style that loads")
        self.words.append(data)

    def handle_comment(self, data):
        self.findings.append(f"comment {data}")


with open(sys.argv[1], encoding="utf-8") as file:
    page = Page()
    page.feed(file.read())
    page.close()
if page.open:
    page.findings.append(f"open {page.open}")
if page.policies != [POLICY]:
    page.findings.append(f"policies {page.policies}")
print("".join(page.words))
for finding in page.findings:
    print("FOUND", finding)
sys.exit(1 if page.findings else 0)
