# The components that other programs link (docs/library.md): shared libraries of the same objects as the program.

option(TIGHTLOOP_RELOCATABLE "What is installed knows no folder of this machine" OFF)
set(TORCH_INSTALLED_DIRS ${TORCH_RUNTIME_DIRS})
if(TIGHTLOOP_RELOCATABLE)
  set(TORCH_INSTALLED_DIRS)
endif()

# tightloop_component(name LAYERS layers... USES components... LINKS libraries...)
function(tightloop_component name)
  cmake_parse_arguments(COMPONENT "" "" "LAYERS;USES;LINKS" ${ARGN})
  set(library tightloop_library_${name})
  set(objects)
  foreach(layer IN LISTS COMPONENT_LAYERS)
    list(APPEND objects $<TARGET_OBJECTS:tightloop_${layer}>)
  endforeach()
  add_library(${library} SHARED ${objects})
  foreach(other IN LISTS COMPONENT_USES)
    target_link_libraries(${library} PUBLIC tightloop_library_${other})
  endforeach()
  target_link_libraries(${library} PRIVATE ${COMPONENT_LINKS})
  target_link_options(${library} PRIVATE -Wl,--no-undefined)
  target_compile_features(${library} INTERFACE cxx_std_20)
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:include>)
  set_target_properties(${library} PROPERTIES OUTPUT_NAME tightloop_${name} EXPORT_NAME ${name} LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    BUILD_RPATH "${TORCH_RUNTIME_DIRS}" INSTALL_RPATH "$ORIGIN;$ORIGIN/tightloop/torch/lib;${TORCH_INSTALLED_DIRS}")
  set_property(GLOBAL APPEND PROPERTY tightloop_components ${library})
endfunction()

# Shared where the program takes archives: those of Debian are not position independent.
find_library(PCRE2_SHARED pcre2-8 REQUIRED)
find_library(ZSTD_SHARED zstd REQUIRED)
set(torch ${TORCH_DIR}/lib/libtorch_cpu.so ${TORCH_DIR}/lib/libc10.so ${TORCH_GOMP} -Wl,--allow-shlib-undefined)

tightloop_component(core LAYERS core LINKS fmt::fmt spdlog::spdlog yaml-cpp Threads::Threads ${CMAKE_DL_LIBS})
target_link_libraries(tightloop_library_core INTERFACE $<INSTALL_INTERFACE:fmt::fmt>)
tightloop_component(data LAYERS tokenizer score data USES core LINKS fmt::fmt simdjson::simdjson ZLIB::ZLIB
  Threads::Threads ${PCRE2_SHARED} ${ZSTD_SHARED} ${SENTENCEPIECE_LIBRARY} ${SENTENCEPIECE_TRAIN_LIBRARY})
tightloop_component(ops LAYERS ops USES core LINKS fmt::fmt ${torch})
target_link_libraries(tightloop_library_ops INTERFACE $<INSTALL_INTERFACE:Tightloop::torch>)
tightloop_component(model LAYERS model USES ops LINKS fmt::fmt simdjson::simdjson ${torch})
target_link_libraries(tightloop_library_model INTERFACE $<INSTALL_INTERFACE:nlohmann_json::nlohmann_json>)
tightloop_component(train LAYERS dist train USES model data LINKS fmt::fmt simdjson::simdjson Threads::Threads ${torch})
tightloop_component(infer LAYERS infer USES train LINKS fmt::fmt simdjson::simdjson Threads::Threads ${torch})
