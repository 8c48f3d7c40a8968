"""`python -m warpcall_server`: the server."""

from warpcall_server import warpcalld

warpcalld()
