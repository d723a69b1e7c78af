# Writes SOURCE from ROOT, VERSION, BUILD_TYPE, OPTIONS and COMPILER. An
# unchanged source is left alone, so that nothing is recompiled for it.

# Sets `result` to what git prints, or to nothing if it fails.
function(ask_git result)
  execute_process(
    COMMAND git ${ARGN}
    WORKING_DIRECTORY ${ROOT}
    OUTPUT_VARIABLE output
    ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE status)
  if(NOT status STREQUAL "0")
    set(output "")
  endif()
  set(${result} "${output}" PARENT_SCOPE)
endfunction()

set(COMMIT unknown)
# Without its own .git the tree may lie inside somebody else's repository.
if(EXISTS ${ROOT}/.git)
  ask_git(head rev-parse --short=12 HEAD)
  if(head)
    ask_git(changes status --porcelain --untracked-files=no)
    set(COMMIT ${head})
    if(changes)
      string(APPEND COMMIT "-dirty")
    endif()
  endif()
endif()

configure_file(${CMAKE_CURRENT_LIST_DIR}/version.cc.in ${SOURCE} @ONLY)
