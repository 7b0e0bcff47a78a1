// The main function of all test programs.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  // Plans for the documented constants, the same on every machine; in the programs that tests start too.
  setenv("GRAPHPIPE_CALIBRATION", "default", 0);
  return doctest::Context(argc, argv).run();
}
