#!/usr/bin/env python3
"""Fails for a relative link of a Markdown file that leads to no file, or to no heading of one.

usage: links.py ROOT      ROOT: the tree to check"""
import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.M | re.S)


def anchors(path):
    """The ids that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ +(.+?) *$", CODE.sub(lambda code: code.group().strip("`") if "\n" not in code.group() else "", path.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-") for heading in headings}


def broken(root, page):
    text = CODE.sub("", page.read_text())
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, heading = target.partition("#")
        file = page.parent / name if name else page
        if not file.exists():
            yield f"{page.relative_to(root)}: no file '{name}'"
        elif heading and heading not in anchors(file):
            yield f"{page.relative_to(root)}: '{target}': no such heading; there are {', '.join(sorted(anchors(file)))}"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "*.md"], capture_output=True, text=True, check=False).stdout.split()
    pages = [root / name for name in listed] or [page for page in root.rglob("*.md") if "build" not in page.parts]
    problems = [problem for page in sorted(pages) if page.is_file() for problem in broken(root, page)]
    print("\n".join(problems) if problems else f"the links of {len(pages)} pages lead to files and headings")
    return bool(problems)


sys.exit(main())
