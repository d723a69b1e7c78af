# Finds what is needed, and by whom. docs/decisions/0001-dependencies.md says
# why. Everything comes from the system; nothing is fetched.

find_package(nlohmann_json 3.10 REQUIRED)  # base

if("comm" IN_LIST CANZONA_ROOMS)
  include(mpi)
endif()
if("linalg" IN_LIST CANZONA_ROOMS)
  include(openblas)
endif()
if(CANZONA_CUDA)
  include(cuda)
endif()

if("report" IN_LIST CANZONA_ROOMS OR "cli" IN_LIST CANZONA_ROOMS)
  find_package(fmt 9 REQUIRED)
endif()
if("cli" IN_LIST CANZONA_ROOMS)
  find_package(CLI11 2.1 REQUIRED)
endif()

if(CANZONA_BUILD_TESTS)
  find_package(GTest 1.12 REQUIRED)
  include(GoogleTest)
endif()
