#!/usr/bin/env bash
# Gathers what a machine with a GPU (and the same torch in its Python) needs to run a build made here.
# usage: bench/pack.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
rm -rf "$folder"; mkdir -p "$folder/lib"
for file in tightloop tests_torch libtightloop_cuda.so; do strip -o "$folder/$file" "build/$file"; done
ldd build/tightloop build/libtightloop_cuda.so | awk '/=> \/(usr\/)?lib/ {print $3}' | sort -u |
  grep -E 'simdjson|spdlog|libfmt|yaml-cpp|sentencepiece|protobuf|absl|libz\.' | xargs -I{} cp -L {} "$folder/lib/"
gzip -f "$folder/libtightloop_cuda.so"  # the largest by far, and it halves
du -sh "$folder"
