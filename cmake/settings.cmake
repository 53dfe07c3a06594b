# ddprun_settings: the language level, warnings and sanitizers of every target of ours; linked privately, never exported.

add_library(ddprun_settings INTERFACE)
target_compile_features(ddprun_settings INTERFACE cxx_std_20)
target_compile_options(ddprun_settings INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Woverloaded-virtual -Wcast-align -Wundef
    -Wno-missing-field-initializers   # a designated initializer that leaves members at their defaults is what we mean
    # g++ 12 is wrong about the insides of std::string, std::vector and Boost when it optimises:
    -Wno-maybe-uninitialized -Wno-nonnull -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds -Wno-restrict
    $<$<CXX_COMPILER_ID:Clang>:-Wno-unknown-warning-option>)   # clang does not know all of these
target_include_directories(ddprun_settings INTERFACE ${PROJECT_SOURCE_DIR})
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)

if(DDP_WERROR)
    target_compile_options(ddprun_settings INTERFACE -Werror)
endif()
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(ddprun_settings INTERFACE -fstack-protector-strong)
    target_compile_definitions(ddprun_settings INTERFACE _FORTIFY_SOURCE=2)
    target_link_options(ddprun_settings INTERFACE LINKER:-z,relro,-z,now)
endif()

if(DDP_SANITIZE)
    target_compile_options(ddprun_settings INTERFACE -fsanitize=${DDP_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all
        -Wno-mismatched-new-delete)   # g++ 12 is wrong about coroutine frames under a sanitizer
    target_link_options(ddprun_settings INTERFACE -fsanitize=${DDP_SANITIZE})
    if(DDP_SANITIZE MATCHES "undefined")
        # It looks at an object through a pipe, and calls it bad in the tests that leave no file descriptor to open one.
        target_compile_options(ddprun_settings INTERFACE -fno-sanitize=vptr)
    endif()
    if(DDP_SANITIZE MATCHES "thread")
        # g++ warns that ThreadSanitizer does not model atomic_thread_fence; we use none across threads that matter to it.
        target_compile_options(ddprun_settings INTERFACE -Wno-tsan)
    endif()
endif()

# Under a sanitizer, optimising what consists of Boost and CLI11 templates takes twice the time of compiling it (websocket.cpp: 45 s
# instead of 22 s), and nothing there computes for long.
function(ddprun_quick_to_sanitize target)
    if(DDP_SANITIZE)
        target_compile_options(${target} PRIVATE -O0)
    endif()
endfunction()

find_program(CCACHE ccache)
if(CCACHE)
    # Precompiled headers are cached only when ccache may trust their time stamps. What one checkout has compiled serves
    # another one of the same content: no absolute path is part of it, but for the directory in the debug information.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
        CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()

# ddprun_library(NAME ALIAS SOURCES... [LINK targets...]): one box of docs/architecture.md.
function(ddprun_library name alias)
    cmake_parse_arguments(PARSE_ARGV 2 ARG "" "" "SOURCES;PUBLIC;PRIVATE")
    add_library(${name} STATIC ${ARG_SOURCES})
    add_library(ddprun::${alias} ALIAS ${name})
    target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
    target_compile_features(${name} PUBLIC cxx_std_20)
    target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE ddprun_settings ${ARG_PRIVATE})
endfunction()

# Functions of newer versions of glibc, for the programs' static libstdc++ and libgcc (docs/design/034).
add_library(ddprun_old_glibc OBJECT cmake/old_glibc.cpp)
target_link_libraries(ddprun_old_glibc PRIVATE ddprun_settings)
target_compile_options(ddprun_old_glibc PRIVATE -fno-exceptions)   # else a program of C would contain libstdc++

# ddprun_program(NAME [STATIC] SOURCES... PRIVATE targets... [COMPONENT name]): a program that lands in bin/ and is installed.
# It links no shared library of C++, so that it loads quickly (docs/design/020), and with STATIC no shared library at all.
function(ddprun_program name)
    cmake_parse_arguments(PARSE_ARGV 1 ARG "STATIC" "COMPONENT" "SOURCES;PRIVATE")
    if(NOT DEFINED ARG_COMPONENT)
        set(ARG_COMPONENT ${CMAKE_INSTALL_DEFAULT_COMPONENT_NAME})
    endif()
    add_executable(${name} ${ARG_SOURCES})
    if(ARG_STATIC AND NOT DDP_SANITIZE)
        target_link_options(${name} PRIVATE -static LINKER:--gc-sections)
    elseif(NOT DDP_SANITIZE)
        target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc LINKER:--as-needed,--gc-sections)
        target_link_libraries(${name} PRIVATE ddprun_old_glibc)
    endif()
    target_link_libraries(${name} PRIVATE ddprun_settings ${ARG_PRIVATE})
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${ARG_COMPONENT})
endfunction()
