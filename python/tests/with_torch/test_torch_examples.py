"""The examples that need torch: the same tests as for the others, where torch is."""

from test_examples import test_a_block_about_clients_runs_as_a_file, test_examples_of_a_module, test_the_guide_runs  # noqa: F401
