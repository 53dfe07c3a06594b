# Everything that is not ours. scripts/install-deps installs it on Debian and Ubuntu.

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
# Programs take both header-only (docs/design/020). spdlog's target names the shared fmt, whose macros the header-only one excludes.
set_property(TARGET spdlog::spdlog_header_only PROPERTY INTERFACE_LINK_LIBRARIES Threads::Threads fmt::fmt-header-only)
find_package(CLI11 REQUIRED)
# TLS between nodes and to etcd, and libcrypto for connections between workers; static where that is installed, so that the programs load quickly (docs/design/020).
set(OPENSSL_USE_STATIC_LIBS ON)
find_package(OpenSSL 3 QUIET)
if(NOT OpenSSL_FOUND)
    set(OPENSSL_USE_STATIC_LIBS OFF)
    find_package(OpenSSL 3 REQUIRED)
endif()
find_package(hwy REQUIRED)     # Highway: reductions for each instruction set, chosen at run time

# hwloc, for --numa-binding. It has no package file for CMake. Static where it links with what every node has, so that ddprun runs on a
# node that has no libhwloc.
find_path(HWLOC_INCLUDE_DIR hwloc.h)
find_library(HWLOC_STATIC_LIBRARY libhwloc.a)
mark_as_advanced(HWLOC_STATIC_LIBRARY)
if(HWLOC_STATIC_LIBRARY AND NOT DEFINED HWLOC_LIBRARY)
    file(WRITE ${PROJECT_BINARY_DIR}/CMakeFiles/hwloc.cpp "#include <hwloc.h>\nint main() { hwloc_topology_t t; return hwloc_topology_init(&t) + hwloc_topology_load(t); }")
    try_compile(DDP_STATIC_HWLOC ${PROJECT_BINARY_DIR}/CMakeFiles/hwloc
        SOURCES ${PROJECT_BINARY_DIR}/CMakeFiles/hwloc.cpp ${PROJECT_SOURCE_DIR}/launcher/binding/no_udev.cpp
        CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${HWLOC_INCLUDE_DIR} LINK_LIBRARIES ${HWLOC_STATIC_LIBRARY} m dl pthread)
    if(DDP_STATIC_HWLOC)
        set(HWLOC_LIBRARY ${HWLOC_STATIC_LIBRARY} CACHE FILEPATH "libhwloc")
    endif()
endif()
find_library(HWLOC_LIBRARY hwloc)
if(HWLOC_INCLUDE_DIR)
    file(STRINGS ${HWLOC_INCLUDE_DIR}/hwloc.h hwloc_version REGEX "^#define HWLOC_API_VERSION 0x")
    string(REGEX MATCH "0x[0-9a-fA-F]+" hwloc_version "${hwloc_version}")
endif()
if(NOT HWLOC_LIBRARY OR NOT hwloc_version OR hwloc_version LESS 0x00020000)
    message(FATAL_ERROR "hwloc (>= 2.0) was not found. Install libhwloc-dev (scripts/install-deps does on Debian and Ubuntu), or set "
        "CMAKE_PREFIX_PATH to the folder where it is installed.")
endif()
add_library(hwloc::hwloc UNKNOWN IMPORTED)
set_target_properties(hwloc::hwloc PROPERTIES
    IMPORTED_LOCATION ${HWLOC_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${HWLOC_INCLUDE_DIR})
if(HWLOC_LIBRARY MATCHES "\\.a$")
    add_library(ddprun_no_udev STATIC launcher/binding/no_udev.cpp)
    target_link_libraries(ddprun_no_udev PRIVATE ddprun_settings)
    set_property(TARGET hwloc::hwloc PROPERTY INTERFACE_LINK_LIBRARIES ddprun_no_udev m ${CMAKE_DL_LIBS})
endif()

# RE2, for --grep and --exclude: the agent must not wait for a pattern. Static where that is installed; Debian 12 has no package
# file for CMake.
find_path(RE2_INCLUDE_DIR re2/re2.h)
find_library(RE2_LIBRARY NAMES libre2.a re2)
find_package(re2 CONFIG QUIET)   # names the libraries that a static RE2 of 2023-06 or later needs
if(NOT re2_FOUND AND (NOT RE2_INCLUDE_DIR OR NOT RE2_LIBRARY))
    message(FATAL_ERROR "RE2 was not found. Install libre2-dev (scripts/install-deps does on Debian and Ubuntu), or set "
        "CMAKE_PREFIX_PATH to the folder where it is installed.")
endif()
if(re2_FOUND)
    add_library(ddprun_re2 INTERFACE)
    target_link_libraries(ddprun_re2 INTERFACE re2::re2)
else()
    add_library(ddprun_re2 UNKNOWN IMPORTED)
    set_target_properties(ddprun_re2 PROPERTIES
        IMPORTED_LOCATION ${RE2_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${RE2_INCLUDE_DIR} INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()

set(Boost_USE_STATIC_LIBS ON)   # so that a program runs on a node that has no Boost
find_package(Boost 1.81 REQUIRED COMPONENTS json container filesystem)

# Asio and Beast compiled once (cmake/asio_impl.cpp) instead of in every file that includes them.
add_library(ddprun_asio STATIC cmake/asio_impl.cpp cmake/asio_pch.cpp)
target_compile_definitions(ddprun_asio PUBLIC
    BOOST_ASIO_SEPARATE_COMPILATION BOOST_BEAST_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED)
target_link_libraries(ddprun_asio PUBLIC Boost::headers Threads::Threads PRIVATE fmt::fmt-header-only ddprun_settings)
target_compile_features(ddprun_asio PUBLIC cxx_std_20)
target_precompile_headers(ddprun_asio PRIVATE <cmake/asio_pch.hpp>)
ddprun_quick_to_sanitize(ddprun_asio)
set_source_files_properties(cmake/asio_impl.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
# The same for TLS: only programs that link it depend on OpenSSL.
add_library(ddprun_asio_ssl STATIC cmake/asio_ssl_impl.cpp)
target_link_libraries(ddprun_asio_ssl PUBLIC ddprun_asio OpenSSL::SSL PRIVATE ddprun_settings)
ddprun_quick_to_sanitize(ddprun_asio_ssl)
# A target that runs on Asio: ddprun_use_asio(target).
function(ddprun_use_asio target)
    target_link_libraries(${target} PUBLIC ddprun_asio)
    target_precompile_headers(${target} REUSE_FROM ddprun_asio)
    ddprun_quick_to_sanitize(${target})
    if(NOT DDP_SANITIZE)
        target_compile_options(${target} PRIVATE -Wno-mismatched-new-delete)   # g++ 12 is wrong about coroutine frames
    endif()
endfunction()
