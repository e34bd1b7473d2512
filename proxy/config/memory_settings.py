"""The section `memories` of `config.yaml`."""

from pydantic import Field

from proxy.config.fields import Base, Seconds


class MemoriesSettings(Base):
    """Memories of applications about their users, by `/v1/memories`. They stay where `state` says."""

    max_per_user: int = Field(default=10_000, ge=1, le=100_000)
    """The most memories of one user, and of a tenant's memories without a user. The least confident leave first, of
    these the oldest."""

    max_users: int = Field(default=10_000, ge=1, le=100_000)
    """The most users of one tenant that have memories. The user whose memories were used longest ago leaves."""

    max_characters: int = Field(default=2000, ge=100, le=16_000)
    """The longest text of one memory."""

    max_import: int = Field(default=10_000, ge=1)
    """The most memories of one request."""

    merge_at: float = Field(default=0.92, gt=0, le=1)
    """The cosine from which two texts of one kind count as the same; 1 means never."""

    ttl: Seconds = 365 * 86400.0
    """Seconds for which a user's memories stay after their last use."""
