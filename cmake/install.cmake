# find_package(ddprun) with ddp::ddp. The programs and man pages are installed where they are built.
include(CMakePackageConfigHelpers)
install(TARGETS ddp EXPORT ddprunTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY worker_lib/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT ddprunTargets NAMESPACE ddp:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun)
configure_package_config_file(cmake/ddprunConfig.cmake.in ddprunConfig.cmake
    INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun)
write_basic_package_version_file(ddprunConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ddprunConfig.cmake ${PROJECT_BINARY_DIR}/ddprunConfigVersion.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ddprun)
