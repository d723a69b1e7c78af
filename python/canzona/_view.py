"""Pages inside notebooks."""

from __future__ import annotations

import html


def frame(page: str, height: int = 640) -> str:
    """A page of its own styles and scripts, as part of another."""
    return (
        f'<iframe srcdoc="{html.escape(page)}" width="100%" height="{height}" '
        'style="border: 0" sandbox="allow-scripts"></iframe>'
    )
