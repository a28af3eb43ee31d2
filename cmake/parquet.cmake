# libtightloop_parquet.so: the Parquet reader and writer, loaded by the program on first use. Built where Arrow is (tools/setup
# brings it with pyarrow).
set(TIGHTLOOP_ARROW "${CMAKE_SOURCE_DIR}/.deps/pyarrow" CACHE PATH "The pyarrow folder (with include/ and libarrow)")
file(GLOB ARROW_LIBRARY ${TIGHTLOOP_ARROW}/libarrow.so.[0-9]*)
file(GLOB PARQUET_LIBRARY ${TIGHTLOOP_ARROW}/libparquet.so.[0-9]*)
if(NOT ARROW_LIBRARY OR NOT PARQUET_LIBRARY)
  message(STATUS "Arrow not found: building without the Parquet plug-in")
  return()
endif()
file(REAL_PATH ${TIGHTLOOP_ARROW} ARROW_DIR)

add_library(tightloop_parquet MODULE ${CMAKE_SOURCE_DIR}/src/data/read/parquet_plugin.cpp
  ${CMAKE_SOURCE_DIR}/src/data/read/parquet_write_plugin.cpp)
target_link_libraries(tightloop_parquet PRIVATE tightloop_flags fmt::fmt ${PARQUET_LIBRARY} ${ARROW_LIBRARY})
target_include_directories(tightloop_parquet SYSTEM PRIVATE ${ARROW_DIR}/include)
target_link_options(tightloop_parquet PRIVATE -Wl,--allow-shlib-undefined)
set_target_properties(tightloop_parquet PROPERTIES BUILD_RPATH ${ARROW_DIR})
add_dependencies(tightloop tightloop_parquet)  # they share C++ types: one must not be older than the other
