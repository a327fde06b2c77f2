"""Texts of SQL that know where they stand. Made without the parser, which is an extra."""

from __future__ import annotations


class Text(str):
    """A text of SQL, what errors call it, and the file that it stands in, if it does.

    With `quoted_names`, `"x"` is a name in it, as in standard SQL, and otherwise a string, as in
    Spark.
    """

    called: str
    file: str
    quoted_names: bool

    def __new__(
        cls, text: str, called: str = "SQL", *, file: str = "", quoted_names: bool = False
    ) -> Text:
        made = super().__new__(cls, text)
        made.called, made.file, made.quoted_names = called, file, quoted_names
        return made

    def __deepcopy__(self, memo: object) -> Text:
        return self  # copies of nodes share their text
