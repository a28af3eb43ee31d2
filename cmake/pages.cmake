# Pages inside the program: their files become constants of a .cpp that CMake writes. They are read when CMake runs, and
# CMake runs again when one of them changes.

# tightloop_page(layer OUTPUT file HTML file STYLES files... SCRIPTS files...): files relative to src/. Styles and scripts
# are put together in this order. The constants are those of page_files.cpp.in beside the HTML.
function(tightloop_page layer)
  cmake_parse_arguments(PAGE "" "OUTPUT;HTML" "STYLES;SCRIPTS" ${ARGN})
  foreach(part IN ITEMS HTML STYLES SCRIPTS)
    set(text_${part})
    foreach(file IN LISTS PAGE_${part})
      file(READ ${CMAKE_SOURCE_DIR}/src/${file} text)
      string(APPEND text_${part} "${text}")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${file})
    endforeach()
  endforeach()
  set(page_html "${text_HTML}")
  set(page_style "${text_STYLES}")
  set(page_script "${text_SCRIPTS}")
  get_filename_component(folder ${PAGE_HTML} DIRECTORY)
  configure_file(${CMAKE_SOURCE_DIR}/src/${folder}/page_files.cpp.in ${CMAKE_BINARY_DIR}/page/${PAGE_OUTPUT} @ONLY)
  target_sources(tightloop_${layer} PRIVATE ${CMAKE_BINARY_DIR}/page/${PAGE_OUTPUT})
endfunction()

# What styles and scripts of all pages share comes first.
set(shared_style serve/page/look.css)
set(shared_script serve/page/element.js)

set(scripts series.js chart.js chart_input.js panels.js sections.js report.js)
list(TRANSFORM scripts PREPEND cli/page/)
tightloop_page(cli OUTPUT report_files.cpp HTML cli/page/report.html STYLES ${shared_style} cli/page/report.css SCRIPTS ${shared_script} ${scripts})

set(scripts inline markdown store server message talk notice list settings translate losses main)
list(TRANSFORM scripts REPLACE "(.+)" "serve/page/chat_\\1.js")
tightloop_page(serve OUTPUT chat_files.cpp HTML serve/page/chat.html STYLES ${shared_style} serve/page/chat.css SCRIPTS ${shared_script} ${scripts})
