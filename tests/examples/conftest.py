from tests.e2e.conftest import behind, http, lab  # noqa: F401  # the same way to start a proxy
