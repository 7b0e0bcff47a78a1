#include "runtime/pace/run_pace.h"

int main(int argc, char** argv) { return graphpipe::runtime::run_pace(argc, argv); }
