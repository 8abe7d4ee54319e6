# The unit test binaries of the build tree, each GoogleTest counted as a test.

import os

import lit.formats

config.name = "ShardQ-Unit"
config.suffixes = []
config.test_source_root = os.path.join(config.shardq_binary_dir, "unittests")
config.test_exec_root = config.test_source_root
config.test_format = lit.formats.GoogleTest(".", "Tests")
# As in ../lit.cfg.py, but what these leak is ours.
config.environment["ASAN_OPTIONS"] = "allow_user_poisoning=0"
for name in os.environ:
    if name.endswith("SAN_OPTIONS") or name.startswith("SHARDQ_"):
        config.environment[name] = os.environ[name]
