"""Fixtures of the server's tests."""

from __future__ import annotations

import pytest

from tests.server.certificates import Certificates, make_certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for this run of the tests."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))
