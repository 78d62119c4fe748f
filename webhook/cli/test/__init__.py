"""`gpugate test` and `gpugate rules new`: unit tests of rules, and rules with their tests from a template."""
