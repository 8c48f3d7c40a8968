#!/usr/bin/env python3
"""mutants.py on a project of one file and two tests, with three mutants: one is killed, one survives, one does not
compile. Checks the files that it copies, changes and restores."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import mutants  # noqa: E402
from mutants import Mutant  # noqa: E402

FILES = {
    "CMakePresets.json": """{"version": 6, "configurePresets":
        [{"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/release"}]}""",
    # Compiles if the text says so; a test looks for a word.
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.25)
project(planted NONE)
enable_testing()
foreach(word right also)
  add_custom_target(${word} ALL grep -q compiles ${CMAKE_SOURCE_DIR}/text
    COMMAND ${CMAKE_COMMAND} -E make_directory bin COMMAND ${CMAKE_COMMAND} -E copy /bin/sh bin/${word})
  add_test(NAME ${word}_test COMMAND bin/${word} -c "grep -q ${word} ${CMAKE_SOURCE_DIR}/text")
endforeach()
add_test(NAME script_test COMMAND sh -c "exit 0")
add_test(NAME handed_test COMMAND /usr/bin/env sh -c "exit 0" bin/right bin/also)
""",
    ".gitignore": "/build/\n",
    "text": "compiles, is right, twice twice\n",
}


def planted(by="wrong", text="right", tests="right_test", file="text"):
    return Mutant("a mutant", file, text, by, tests)


class MutantsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, text in FILES.items():
            (self.root / name).write_text(text)
        subprocess.run(["git", "init", "--quiet", self.root], check=True)
        self.addCleanup(setattr, mutants, "ROOT", mutants.ROOT)
        mutants.ROOT = self.root
        self.build = self.root / "build" / "release"
        subprocess.run(["cmake", "-S", self.root, "--preset", "release"], check=True, capture_output=True)

    def copy(self):
        copy = mutants.Copy(self.build, 2)
        self.addCleanup(copy.lock.close)
        return copy

    def rotten(self, *table):
        return "\n".join(mutants.rotten(table, mutants.tests_of(self.build)))

    def test_an_entry_that_has_rotted_is_told_and_why(self):
        self.assertEqual(self.rotten(planted()), "")
        self.assertIn("stands 0 times in text", self.rotten(planted(text="left")))
        self.assertIn("stands 2 times in text", self.rotten(planted(text="twice")))
        self.assertIn("stands 0 times in gone", self.rotten(planted(file="gone")))
        self.assertIn("changes nothing", self.rotten(planted(by="right")))
        self.assertIn("ctest has no test right", self.rotten(planted(tests="right")))  # not as a part
        self.assertIn("a mutant: stands there twice", self.rotten(planted(), planted()))

    def test_tests_name_the_programs_to_build(self):
        programs = mutants.tests_of(self.build)
        self.assertEqual(mutants.targets_for(["right_test"], programs), ["right"])
        self.assertEqual(mutants.targets_for(["script_test"], programs), mutants.SERVED)
        self.assertEqual(mutants.targets_for(["handed_test"], programs), ["also", "right"])

    def test_only_what_compiles_and_turns_a_test_red_is_planted(self):
        copy = self.copy()
        self.assertEqual(copy.verdict(planted()), ("right_test", ""))
        by, instead = copy.verdict(planted(by="all right"))
        self.assertIsNone(by)
        self.assertIn("SURVIVES right_test", instead)
        by, instead = copy.verdict(planted(text="compiles", by="does not"))
        self.assertIsNone(by)
        self.assertIn("does not compile", instead)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertFalse(mutants.run_all([planted(), planted(by="all right")], copy))
            self.assertTrue(mutants.run_all([planted()], copy))
        self.assertIn("1 of 2 mutants killed", out.getvalue())

    def test_a_test_that_is_red_anyway_kills_nothing(self):
        with self.assertRaisesRegex(mutants.Failure, "red without any mutant: also_test"):
            self.copy().check_green([planted(tests="also_test")])

    def test_the_checkout_stays_and_the_copy_is_whole_again(self):
        copy = self.copy()

        def interrupted(_log, _tests):
            self.assertIn("wrong", (copy.tree / "text").read_text())
            self.assertEqual((self.root / "text").read_text(), FILES["text"])
            raise KeyboardInterrupt

        copy.red = interrupted
        with self.assertRaises(KeyboardInterrupt):
            copy.verdict(planted())
        self.assertEqual((copy.tree / "text").read_text(), FILES["text"])

    def test_the_copy_follows_what_git_knows_and_heals_what_a_killed_run_left(self):
        copy = self.copy()
        unchanged = os.stat(copy.tree / "CMakeLists.txt").st_mtime_ns
        (copy.tree / "text").write_text("wrong")
        (self.root / "new").write_text("not committed")
        (self.root / ".gitignore").write_text("/build/\nignored\n")
        (self.root / "ignored").write_text("")
        copy.update()
        self.assertEqual((copy.tree / "text").read_text(), FILES["text"])
        self.assertEqual((copy.tree / "new").read_text(), "not committed")
        self.assertFalse((copy.tree / "ignored").exists())
        self.assertEqual(os.stat(copy.tree / "CMakeLists.txt").st_mtime_ns, unchanged)
        (self.root / "new").unlink()
        copy.update()
        self.assertFalse((copy.tree / "new").exists())

    def test_two_runs_do_not_share_a_copy(self):
        self.copy()
        with self.assertRaisesRegex(mutants.Failure, "another run uses"):
            self.copy()


if __name__ == "__main__":
    unittest.main()
