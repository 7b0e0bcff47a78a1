# Packages by CPack: a tar that runs wherever it is unpacked, and a .deb. Both hold the compiler as one static program and the
# runtime's sources, which graphpipe-runtime compiles for the LibTorch of the machine. scripts/package makes and tests them.

set(source_folder share/graphpipe/source)
install(PROGRAMS "${PROJECT_SOURCE_DIR}/cmake/package/graphpipe-runtime" DESTINATION bin COMPONENT runtime_sources)
install(FILES "${PROJECT_SOURCE_DIR}/CMakeLists.txt" "${PROJECT_SOURCE_DIR}/LICENSE"
  DESTINATION "${source_folder}" COMPONENT runtime_sources)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/support" "${PROJECT_SOURCE_DIR}/wire" "${PROJECT_SOURCE_DIR}/runtime"
  "${PROJECT_SOURCE_DIR}/cmake" DESTINATION "${source_folder}" COMPONENT runtime_sources PATTERN package EXCLUDE)
install(FILES "${PROJECT_SOURCE_DIR}/python/graphpipe_feed.py" DESTINATION "${source_folder}/python" COMPONENT runtime_sources)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/python/graphpipe_data" DESTINATION "${source_folder}/python" COMPONENT runtime_sources
  FILES_MATCHING PATTERN "*.py")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION share/doc/graphpipe RENAME copyright COMPONENT runtime_sources)

set(CPACK_PACKAGE_NAME graphpipe)
set(CPACK_PACKAGE_VENDOR GraphPipe)
set(CPACK_PACKAGE_CONTACT "GraphPipe maintainers <maintainers@graphpipe.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "compiler for pipeline-parallel training of ONNX models")
set(CPACK_PACKAGE_DESCRIPTION "It cuts a model into a graph of stages, plans their devices, micro-batches and schedule,
and writes one C++ program per device. They link LibTorch (2.11 to 2.15), which is not part
of this package: graphpipe-runtime compiles the runtime for it, once.")
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR "TGZ;DEB")
set(CPACK_PACKAGE_FILE_NAME "graphpipe-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# The program needs no library. What it calls to build programs: CMake and a compiler of C++20.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "cmake (>= 3.25), g++ (>= 4:12), make | ninja-build")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ninja-build, mold, python3")
# What graphpipe-runtime compiled goes with the package.
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/cmake/package/postrm")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
