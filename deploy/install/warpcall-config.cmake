# find_package(warpcall): the target warpcall::client. Include <warpcall/client.h>.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(absl)
find_dependency(Protobuf)
find_dependency(gRPC 1.51 CONFIG)
include(${CMAKE_CURRENT_LIST_DIR}/warpcall-targets.cmake)
