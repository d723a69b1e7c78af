# Writes OUTPUT, a source that holds the texts of FILES, which are separated by
# "|": the function page_file of "canzona/report/page.h".

set(cases "")
string(REPLACE "|" ";" FILES "${FILES}")
foreach(file IN LISTS FILES)
  cmake_path(GET file FILENAME name)
  file(READ ${file} text)
  string(FIND "${text}" ")embedded\"" end)
  if(NOT end EQUAL -1)
    message(FATAL_ERROR "${file}: it must not contain )embedded\"")
  endif()
  string(APPEND cases "  if (name == \"${name}\")\n    return R\"embedded(${text})embedded\";\n")
endforeach()

file(WRITE ${OUTPUT}
     "// Written by cmake/embed_files.cmake.
#include <stdexcept>
#include <string>

#include \"canzona/report/page.h\"

namespace canzona::report {

std::string_view page_file(std::string_view name) {
${cases}  throw std::out_of_range(\"no file of a page: \" + std::string(name));
}

}  // namespace canzona::report
")
