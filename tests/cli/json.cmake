# Reads FILE as JSON; prints the value at MEMBER, a path such as
# "strategies 0 name". Fails if either cannot be done.
file(READ ${FILE} text)
separate_arguments(path UNIX_COMMAND "${MEMBER}")
if(path)
  string(JSON value GET "${text}" ${path})
else()
  string(JSON kind TYPE "${text}")
  set(value ${kind})
endif()
message(STATUS "${value}")
