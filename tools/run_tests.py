"""Runs the test programs of a build folder and prints the sum: 'N passed, N failed, N skipped'.

usage: run_tests.py BUILD_FOLDER [FILTER [PROGRAM]]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def run(program, pattern, report):
    """One program, to its end. Its output is shown when something failed. Gives (passed, failed names, skipped)."""
    command = [str(program), f"--gtest_filter={pattern}", f"--gtest_output=json:{report}", "--gtest_brief=1"]
    started = time.time()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    passed, failed, skipped = 0, [], []
    if report.exists():
        for suite in json.loads(report.read_text()).get("testsuites", []):
            for test in suite["testsuite"]:
                name = f"{suite['name']}.{test['name']}"
                if test.get("failures"):
                    failed.append(name)
                elif test.get("result") == "SKIPPED":
                    skipped.append(name)
                elif test.get("status") == "RUN":
                    passed += 1
    if done.returncode != 0 and not failed:
        failed.append(f"{program.name} (ended with status {done.returncode})")
    if failed:
        print(done.stdout)
    print(f"{program.name}: {passed} passed, {len(failed)} failed, {len(skipped)} skipped in {time.time() - started:.1f} s",
          flush=True)
    return passed, failed, skipped


def main():
    build, pattern = pathlib.Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "*"
    name = sys.argv[3] if len(sys.argv) > 3 else "tests_*"
    programs = sorted(path for path in build.glob(name) if os.access(path, os.X_OK) and path.is_file())
    if not programs:
        sys.exit(f"run_tests.py: no test program in {build}; build the target 'all' first.")
    passed, failed, skipped = 0, [], []
    with tempfile.TemporaryDirectory() as folder:
        for program in programs:
            one_passed, one_failed, one_skipped = run(program, pattern, pathlib.Path(folder) / f"{program.name}.json")
            passed += one_passed
            failed += one_failed
            skipped += one_skipped
    for name in skipped:
        print(f"skipped: {name}")
    for name in failed:
        print(f"FAILED: {name}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    sys.exit(1 if failed or passed == 0 else 0)


main()
