#include "driver/cli/commands.h"

int main(int argc, char** argv) { return graphpipe::driver::run_command_line(argc, argv); }
