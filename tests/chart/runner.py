"""Runs the cases beside it and prints one line a case and a last one that tests/run counts.

What must stay true: a case that cannot run says why and is counted as ignored, never as passed.
"""

import os
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Lines(unittest.TestResult):
    """One line a case, the reason below what failed."""

    def __init__(self):
        super().__init__()
        self.passed = 0

    def addSuccess(self, test):
        self.passed += 1
        print(f"test {test.id()} ... ok", flush=True)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"test {test.id()} ... ignored: {reason}", flush=True)
        print(f"SKIPPED chart: {test.id()}: {reason}", file=sys.stderr, flush=True)

    def _broken(self, test, error):
        print(f"test {test.id()} ... FAILED\n{self._exc_info_to_string(error, test)[-4000:]}", flush=True)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self._broken(test, error)

    def addError(self, test, error):
        super().addError(test, error)
        self._broken(test, error)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error:
            self._broken(subtest, error)


def main():
    os.chdir(HERE)
    loader = unittest.TestLoader()
    pattern = sys.argv[1] if len(sys.argv) > 1 else "test_*.py"
    suite = loader.discover(str(HERE), pattern=pattern, top_level_dir=str(HERE))
    result = Lines()
    suite.run(result)
    failed = len(result.failures) + len(result.errors)
    word = "FAILED" if failed else "ok"
    print(f"\ntest result: {word}. {result.passed} passed; {failed} failed; {len(result.skipped)} ignored")
    return 1 if failed or not result.passed else 0


if __name__ == "__main__":
    sys.exit(main())
