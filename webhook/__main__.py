"""`python -m webhook` is `gpugate`."""

from webhook.cli import main

main(prog_name="gpugate")
