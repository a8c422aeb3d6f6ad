"""Drawings made of elements, so that no text can become markup."""

from xml.etree.ElementTree import Element

from advisor.text import escaped


def element(tag: str, *children: Element | str, **attributes: str) -> Element:
    """Make an element; `class_` stands for class, and an underline in the name of an attribute for a hyphen."""
    made = Element(tag, {name.rstrip("_").replace("_", "-"): escaped(value) for name, value in attributes.items()})
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + escaped(child)
        else:
            made.text = (made.text or "") + escaped(child)
    return made
