"""One key whose limits are counted and never reached."""

from litellm.proxy._types import ProxyException, UserAPIKeyAuth


async def check_key(request, api_key: str) -> UserAPIKeyAuth:
    if api_key != "sk-bench":
        raise ProxyException("unauthorized", "auth_error", "api_key", 401)
    return UserAPIKeyAuth(
        api_key=api_key,
        rpm_limit=1_000_000,
        tpm_limit=1_000_000_000,
        max_parallel_requests=100_000,
    )
