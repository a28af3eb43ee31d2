# cmake --install build --prefix P: the program, the libraries with their headers, plug-ins and recipes (docs/library.md).
# Libraries find each other by $ORIGIN, and torch in lib/tightloop/torch (a link that tightloop-setup makes), or where it
# was when this was built; packages (tools/package) know the former alone.
include(CMakePackageConfigHelpers)
set(plugins lib/tightloop)  # core/plugin.cpp looks there
set(package lib/cmake/Tightloop)

set_target_properties(tightloop PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/tightloop/torch/lib;${TORCH_INSTALLED_DIRS}")
install(TARGETS tightloop RUNTIME DESTINATION bin)
foreach(plugin IN ITEMS tightloop_cuda tightloop_parquet)
  if(TARGET ${plugin})
    set(folders)
    if(NOT TIGHTLOOP_RELOCATABLE)
      get_target_property(folders ${plugin} BUILD_RPATH)
    endif()
    set_target_properties(${plugin} PROPERTIES INSTALL_RPATH "$ORIGIN/torch/lib;$ORIGIN/pyarrow;${folders}")
    install(TARGETS ${plugin} LIBRARY DESTINATION ${plugins})
  endif()
endforeach()
install(DIRECTORY configs DESTINATION share/tightloop)

# The program itself writes what shells and man read.
set(made)
foreach(entry IN ITEMS "bash share/bash-completion/completions/tightloop" "zsh share/zsh/site-functions/_tightloop"
    "fish share/fish/vendor_completions.d/tightloop.fish" "man share/man/man1/tightloop.1")
  separate_arguments(entry)
  list(POP_FRONT entry what file)
  set(output ${CMAKE_BINARY_DIR}/made/${file})
  cmake_path(GET output PARENT_PATH folder)
  add_custom_command(OUTPUT ${output} DEPENDS tightloop COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
    COMMAND tightloop completion ${what} > ${output} COMMENT "Writing ${file}" VERBATIM)
  list(APPEND made ${output})
endforeach()
add_custom_target(tightloop_made ALL DEPENDS ${made})
install(DIRECTORY ${CMAKE_BINARY_DIR}/made/share DESTINATION .)

get_property(components GLOBAL PROPERTY tightloop_components)
install(TARGETS ${components} EXPORT TightloopTargets LIBRARY DESTINATION lib)
install(EXPORT TightloopTargets NAMESPACE Tightloop:: DESTINATION ${package})
install(CODE "
  set(SOURCE \"${CMAKE_SOURCE_DIR}\")
  set(INCLUDES \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/include\")
  include(\"${CMAKE_SOURCE_DIR}/cmake/install_headers.cmake\")")

file(STRINGS ${TORCH_DIR}/version.py TORCH_VERSION REGEX "^__version__")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TORCH_VERSION "${TORCH_VERSION}")
set(TORCH_INSTALLED_DIR)
if(NOT TIGHTLOOP_RELOCATABLE)
  set(TORCH_INSTALLED_DIR ${TORCH_DIR})
endif()
configure_package_config_file(cmake/TightloopConfig.cmake.in ${CMAKE_BINARY_DIR}/TightloopConfig.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TightloopConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TightloopConfig.cmake ${CMAKE_BINARY_DIR}/TightloopConfigVersion.cmake
  DESTINATION ${package})
