# tools/setup hands this to the build of llama-cpp-python: of llama.cpp the library alone, without what its
# command-line programs share, which takes a third of the time and which no test here uses.
set(LLAMA_BUILD_COMMON OFF)
