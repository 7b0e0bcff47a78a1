#include "runtime/profiling/calibrate.h"

int main(int argc, char** argv) { return graphpipe::runtime::run_calibrate(argc, argv); }
