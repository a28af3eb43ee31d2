# libtightloop_cuda.so: kernels and device services, loaded by the program at run time. It is built wherever nvcc is,
# GPU or not; symbols of torch_cuda's own dependencies are left for the machine that has them.
if(NOT TIGHTLOOP_CUDA)
  return()
endif()
find_program(NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
if(NOT NVCC)
  message(STATUS "nvcc not found: building without the CUDA plug-in")
  return()
endif()
set(CMAKE_CUDA_COMPILER ${NVCC})
set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # code for both, and PTX of 90 for later ones
set(CMAKE_CUDA_STANDARD 20)
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit REQUIRED)

file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/*.cpp ${CMAKE_SOURCE_DIR}/src/ops/*_cuda.cpp)
file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/*.cu)
# Compiled alone: files whose headers are so large that no other should wait for them, or that have flags of their own.
set(alone ${sources})
list(FILTER alone INCLUDE REGEX "/(process_group|cudnn_[a-z_]+)\\.cpp$")
list(FILTER sources EXCLUDE REGEX "/(process_group|cudnn_[a-z_]+)\\.cpp$")
tightloop_units(cuda sources)
add_library(tightloop_cuda MODULE ${sources} ${alone} ${kernels})
target_link_libraries(tightloop_cuda PRIVATE torch_torch_cuda torch_c10_cuda torch_torch_cpu torch_c10 CUDA::cudart fmt::fmt)
target_include_directories(tightloop_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src)
find_path(NCCL_INCLUDE nccl.h REQUIRED HINTS ${CUDAToolkit_INCLUDE_DIRS} ${TORCH_DIR}/../nvidia/nccl/include)
target_include_directories(tightloop_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE})
# Attention by cuDNN: its library comes with torch_cuda, its headers with the toolkit or torch's own packages.
find_path(CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${TORCH_DIR}/../nvidia/cudnn/include)
set(CUDNN_FRONTEND ${CMAKE_SOURCE_DIR}/.deps/cudnn_frontend)
if(CUDNN_INCLUDE AND EXISTS ${CUDNN_FRONTEND}/cudnn_frontend.h)
  file(REAL_PATH ${CUDNN_FRONTEND} CUDNN_FRONTEND)
  target_include_directories(tightloop_cuda SYSTEM PRIVATE ${CUDNN_INCLUDE})
  # Plans are made once: what counts is how long it takes to compile.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/ops/attention/cudnn_plan_cuda.cpp PROPERTIES
    COMPILE_OPTIONS "-O1;-isystem${CUDNN_FRONTEND}"
    COMPILE_DEFINITIONS "NV_CUDNN_FRONTEND_DISABLE_LOGGING;CUDNN_FRONTEND_SKIP_JSON_LIB")
else()
  message(STATUS "cudnn.h or cuDNN's frontend not found: windows, documents and dropout take attention with a mask")
  get_target_property(sources tightloop_cuda SOURCES)
  list(FILTER sources EXCLUDE REGEX "/cudnn_[a-z_]+\\.cpp$")
  set_property(TARGET tightloop_cuda PROPERTY SOURCES ${sources})
endif()
target_compile_options(tightloop_cuda PRIVATE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;$<$<BOOL:${TIGHTLOOP_WERROR}>:-Werror>>"
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${TORCH_DIR}/include>"
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${TORCH_DIR}/include/torch/csrc/api/include>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-lineinfo;-Xcompiler=-Wall>")
target_compile_definitions(tightloop_cuda PRIVATE AT_PER_OPERATOR_HEADERS USE_DISTRIBUTED USE_C10D_NCCL)
# Nothing of torch_cuda is called by name, but loading the plug-in must bring it.
target_link_options(tightloop_cuda PRIVATE -Wl,--no-as-needed -Wl,--allow-shlib-undefined)
set_target_properties(tightloop_cuda PROPERTIES BUILD_RPATH "${TORCH_RUNTIME_DIRS}" CUDA_RUNTIME_LIBRARY Shared)
