"""Refuse requests that name a secret project."""

from proxy.chat import ChatRequest
from proxy.chat.placeholders import StandIn
from proxy.context import Context
from proxy.policy import Decision, Guard, Keep, Reject


class RefuseProject(Guard):
    """Refuse a request that names a project, wherever the name stands."""

    project: str = "Bluebird"
    """The name."""

    def redact(self, text: str, stand_in: StandIn) -> str:
        """Return a text without the name; headers and the query are given to this method too."""
        return text.replace(self.project, "")

    def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Refuse where any string of the request would change."""
        cleaned = self.with_strings(request, lambda text: text.replace(self.project, ""))
        if isinstance(cleaned, Reject):
            return cleaned
        if cleaned is request:
            return Keep("the project is not named")
        return Reject("this project must not be named to a model", code="project_named", status=403)
