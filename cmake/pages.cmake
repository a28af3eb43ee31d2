# The report's page inside the program: files of src/cli/page become constants of build/page/page_files.cpp. They are
# read when CMake runs, and CMake runs again when one of them changes.
set(page_folder ${CMAKE_SOURCE_DIR}/src/cli/page)
set(scripts series.js chart.js chart_input.js panels.js sections.js report.js)  # in this order, as one script
set(page_script)
foreach(file IN LISTS scripts)
  file(READ ${page_folder}/${file} text)
  string(APPEND page_script "${text}")
endforeach()
file(READ ${page_folder}/report.html page_html)
file(READ ${page_folder}/report.css page_style)
list(TRANSFORM scripts PREPEND ${page_folder}/)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page_folder}/report.html ${page_folder}/report.css ${scripts})
configure_file(${page_folder}/page_files.cpp.in ${CMAKE_BINARY_DIR}/page/page_files.cpp @ONLY)
target_sources(tightloop_cli PRIVATE ${CMAKE_BINARY_DIR}/page/page_files.cpp)

# The same for the page that 'tightloop serve' gives to a browser.
set(chat_page_file ${CMAKE_SOURCE_DIR}/src/serve/page/chat.html)
file(READ ${chat_page_file} chat_page)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${chat_page_file})
configure_file(${CMAKE_SOURCE_DIR}/src/serve/page/page_file.cpp.in ${CMAKE_BINARY_DIR}/page/page_file.cpp @ONLY)
target_sources(tightloop_serve PRIVATE ${CMAKE_BINARY_DIR}/page/page_file.cpp)
