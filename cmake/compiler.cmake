# Language level, warnings and sanitizers of every target.
set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# One rounding per written operation: a compiler that contracts a*b+c by itself would give other bits per target.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-sign-conversion;-ffp-contract=off>")
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra>")

# The CUDA back end is built where nvcc is found.
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  enable_language(CUDA)
  # Debian 12's CMake does not know that nvcc 13 has C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA_STANDARD 20)
else()
  message(STATUS "no nvcc: the CUDA back end is left out")
endif()

# Fuzzing needs Clang 16 or later. Clang offers the concepts that libstdc++ 12 asks for before std::expected, but states an older version.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 19)
  add_compile_options(-D__cpp_concepts=202002L -Wno-macro-redefined)
endif()

set(DEEPINFER_SANITIZE "" CACHE STRING "sanitizers, for example address,undefined or thread")
if(DEEPINFER_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${DEEPINFER_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${DEEPINFER_SANITIZE})
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Paths below the source folder count as relative, so that a fresh clone finds what another clone compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

# Instruction sets that kernels are not compiled for. x86: SSSE3 without SSE4 is no machine anybody runs this on. ARM: kernels hold registers in
# arrays, which the vectors of SVE, whose length is known at run time only, do not allow; NEON is there too.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-march=armv8-a+crypto>")  # what Highway takes NEON to include; g++ 12 does not inline across the difference
  set(DEEPINFER_HWY_DISABLED "HWY_DISABLED_TARGETS=(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)")
else()
  set(DEEPINFER_HWY_DISABLED HWY_DISABLED_TARGETS=HWY_SSSE3)
endif()
