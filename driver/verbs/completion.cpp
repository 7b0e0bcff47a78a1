// graphpipe completion: what a shell reads to complete the command line.

#include "driver/cli/completion.h"

#include <iostream>

#include "driver/cli/commands.h"
#include "driver/report/report.h"

namespace graphpipe::driver {

int run_completion(const Options& options) {
  const std::string script = completion_script(options.input);
  if (options.json) print_json("completion", JsonObject().add("script", script), {});
  else std::cout << script;
  return 0;
}

}  // namespace graphpipe::driver
