# Everything we link, as targets. torch comes from .deps/torch, a link that tools/setup makes.
set(TIGHTLOOP_TORCH "${CMAKE_SOURCE_DIR}/.deps/torch" CACHE PATH "The torch folder (with include/ and lib/)")
if(NOT EXISTS ${TIGHTLOOP_TORCH}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No torch in ${TIGHTLOOP_TORCH}. Run tools/setup first.")
endif()
file(REAL_PATH ${TIGHTLOOP_TORCH} TORCH_DIR)

add_library(torch_headers INTERFACE)
# -idirafter: torch carries its own fmt, which must not hide the system's.
target_compile_options(torch_headers INTERFACE
  "SHELL:-idirafter ${TORCH_DIR}/include" "SHELL:-idirafter ${TORCH_DIR}/include/torch/csrc/api/include")
target_compile_definitions(torch_headers INTERFACE AT_PER_OPERATOR_HEADERS USE_DISTRIBUTED USE_C10D_GLOO)
if(TIGHTLOOP_SANITIZE MATCHES "undefined")
  # Checks of each pointer in torch's inline code double the time to compile. A null pointer is found by ASan as well;
  # core, tokenizer and data, where files are mapped, have all checks.
  target_compile_options(torch_headers INTERFACE -fno-sanitize=null,alignment)
endif()

function(torch_library name)
  add_library(torch_${name} SHARED IMPORTED GLOBAL)
  set_target_properties(torch_${name} PROPERTIES IMPORTED_LOCATION ${TORCH_DIR}/lib/lib${name}.so)
endfunction()
torch_library(c10)
torch_library(torch_cpu)
torch_library(c10_cuda)
torch_library(torch_cuda)

# Where libtorch_cpu.so finds libcudart and libcupti: beside torch, as pip lays them out.
file(GLOB TORCH_RUNTIME_DIRS ${TORCH_DIR}/../nvidia/cu13/lib ${TORCH_DIR}/../nvidia/*/lib)
list(REMOVE_DUPLICATES TORCH_RUNTIME_DIRS)
list(PREPEND TORCH_RUNTIME_DIRS ${TORCH_DIR}/lib)

add_library(torch_cpu_only INTERFACE)
target_link_libraries(torch_cpu_only INTERFACE torch_headers torch_torch_cpu torch_c10)
# Without OpenMP at::parallel_for is serial; torch's own copy of the runtime, so that there is one pool of threads.
target_compile_options(torch_cpu_only INTERFACE -fopenmp)
file(GLOB TORCH_GOMP ${TORCH_DIR}/lib/libgomp*.so*)
target_link_libraries(torch_cpu_only INTERFACE ${TORCH_GOMP})
# torch's own libraries may need some that are absent here and present where they run.
target_link_options(torch_cpu_only INTERFACE -Wl,--allow-shlib-undefined)
add_library(torch::cpu ALIAS torch_cpu_only)

find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(simdjson REQUIRED)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_path(SENTENCEPIECE_INCLUDE sentencepiece_processor.h REQUIRED)
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
find_library(SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train REQUIRED)
find_path(GLOO_INCLUDE gloo/context.h REQUIRED)  # torch's headers want these; the code is in torch
find_library(PCRE2_LIBRARY NAMES libpcre2-8.a pcre2-8 REQUIRED)
find_library(ZSTD_LIBRARY NAMES libzstd.a zstd REQUIRED)
