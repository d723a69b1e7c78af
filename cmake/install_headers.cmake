# Installs the public headers and all that they include; the others are details
# that nobody can reach. Runs when a build is installed, so that the list is that
# of the sources as they are then.
#
#   source_root      the project
#   headers_folder   below the prefix

cmake_minimum_required(VERSION 3.25)

set(waiting canzona/canzona.h canzona/c/canzona.h)
set(found)
while(waiting)
  list(POP_FRONT waiting header)
  if(header IN_LIST found)
    continue()
  endif()
  list(APPEND found ${header})
  file(STRINGS ${source_root}/${header} lines REGEX "^#include \"canzona/")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
    list(APPEND waiting ${included})
  endforeach()
endwhile()

# An absolute folder stays as it is.
cmake_path(ABSOLUTE_PATH headers_folder
           BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE destination)
foreach(header IN LISTS found)
  get_filename_component(folder ${header} DIRECTORY)
  file(INSTALL ${source_root}/${header}
       DESTINATION ${destination}/${folder})
endforeach()
