# What a user gets: programs, man pages and headers, the library in both forms with its files for CMake and pkg-config, documents and
# examples. The programs and man pages are installed where they are built. See docs/design/034.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun)

install(TARGETS ddp EXPORT ddprunStaticTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ddp_shared EXPORT ddprunSharedTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT ddprunStaticTargets NAMESPACE ddp:: DESTINATION ${package_dir})
install(EXPORT ddprunSharedTargets NAMESPACE ddp:: DESTINATION ${package_dir})
install(DIRECTORY worker_lib/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

if(BUILD_SHARED_LIBS)
    set(DDP_DEFAULT_TARGET shared)
else()
    set(DDP_DEFAULT_TARGET static)
endif()
configure_package_config_file(cmake/ddprunConfig.cmake.in ddprunConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(ddprunConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ddprunConfig.cmake ${PROJECT_BINARY_DIR}/ddprunConfigVersion.cmake DESTINATION ${package_dir})

# Paths relative to the file itself, so that a package works wherever it is unpacked.
set(DDP_PC_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
string(REGEX REPLACE "[^/]+" ".." DDP_PREFIX_FROM_PC ${DDP_PC_DIR})
configure_file(cmake/ddp.pc.in ddp.pc @ONLY)
configure_file(cmake/ddp-static.pc.in ddp-static.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ddp.pc ${PROJECT_BINARY_DIR}/ddp-static.pc DESTINATION ${DDP_PC_DIR})

install(FILES README.md CHANGELOG.md SECURITY.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN man EXCLUDE)
install(DIRECTORY worker_lib/examples DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The Debian package, by scripts/package. A project that contains this one has packages of its own.
if(PROJECT_IS_TOP_LEVEL)
    set(CPACK_GENERATOR DEB)
    set(CPACK_PACKAGE_NAME ddprun)
    set(CPACK_PACKAGE_CONTACT "the developers of ddprun <ddprun@localhost>")
    set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
    set(CPACK_STRIP_FILES ON)
    set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};ddprun;ddprun;/")
    set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
    set(CPACK_DEBIAN_PACKAGE_SECTION science)
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/worker_lib)
    set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
    set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
    set(CPACK_DEBIAN_PACKAGE_RECOMMENDS python3)
    include(CPack)
endif()
