# deepinfer_room(NAME SOURCES … [ROOMS …] [LIBRARIES …]): one static library per room.
#   ROOMS: rooms whose headers this room may include (public). LIBRARIES: vendor libraries, private to the room.
function(deepinfer_room name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ROOMS;LIBRARIES" ${ARGN})
  add_library(deepinfer_${name} STATIC ${ARG_SOURCES})
  target_include_directories(deepinfer_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  foreach(room ${ARG_ROOMS})
    target_link_libraries(deepinfer_${name} PUBLIC deepinfer_${room})
  endforeach()
  target_link_libraries(deepinfer_${name} PRIVATE ${ARG_LIBRARIES})
endfunction()

# deepinfer_test(ROOM SOURCES … [ROOMS …] [LIBRARIES …]): the test program of a room, ROOM_tests.
# Tests find their data through compile definitions, so that they run from any directory.
function(deepinfer_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;ROOMS;LIBRARIES" ${ARGN})
  add_executable(${name}_tests ${ARG_SOURCES})
  foreach(room ${ARG_ROOMS})
    target_link_libraries(${name}_tests PRIVATE deepinfer_${room})
  endforeach()
  target_link_libraries(${name}_tests PRIVATE ${ARG_LIBRARIES} GTest::gtest GTest::gtest_main Threads::Threads)
  target_include_directories(${name}_tests PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name}_tests PRIVATE
    DEEPINFER_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data"
    DEEPINFER_MODELS="${CMAKE_SOURCE_DIR}/models"
    DEEPINFER_SHARED="${CMAKE_SOURCE_DIR}/../shared")
  add_test(NAME ${name} COMMAND ${name}_tests)
endfunction()
