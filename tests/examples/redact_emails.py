"""Replace e-mail addresses before a request leaves."""

import re

from proxy.chat.placeholders import StandIn
from proxy.policy import Guard

_ADDRESS = re.compile(r"[\w.+-]{1,256}@[\w-]+(\.[\w-]+)+")


class RedactEmails(Guard):
    """Replace e-mail addresses, wherever they stand in a request."""

    placeholder: str = "[e-mail address withheld]"
    """The text in place of an address."""

    def redact(self, text: str, stand_in: StandIn) -> str:
        """Return a text without addresses."""
        return _ADDRESS.sub(self.placeholder, text)
