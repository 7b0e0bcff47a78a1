// graphpipe manual: man pages and the reference, from the table of verbs.

#include "driver/cli/manual.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "driver/cli/commands.h"
#include "driver/cli/usage.h"
#include "driver/report/report.h"
#include "files/text_file.h"

namespace graphpipe::driver {
namespace {

Result<std::vector<std::string>> write_man_pages(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return Diagnostic{.code = Code::kEnvironment,
                      .origin = ModelText(folder),
                      .message = "it cannot be made: " + error.message(),
                      .hint = "name a folder that you may write to"};
  std::vector<std::string> written{folder + "/graphpipe.1"};
  GP_TRY_VOID(files::write_file(written.back(), overview_man_page()));
  for (const CommandEntry& verb : all_commands()) {
    written.push_back(folder + "/graphpipe-" + std::string(verb.name) + ".1");
    GP_TRY_VOID(files::write_file(written.back(), verb_man_page(verb)));
  }
  return written;
}

Status check_manual_flags(const Options& options) {
  if (options.output.empty()) {
    if (options.format == "markdown" && !options.input.empty())
      return usage(options.input, "the Markdown page is of all verbs", "leave the verb or --format markdown out");
    return Ok{};
  }
  if (!options.input.empty() || options.format == "markdown")
    return usage("-o " + options.output, "it is the folder for all man pages",
                 "leave the verb and --format markdown out, or print to standard output without -o");
  return Ok{};
}

std::string page_of(const Options& options) {
  if (options.format == "markdown") return markdown_reference();
  const auto verb = std::ranges::find(all_commands(), std::string_view(options.input), &CommandEntry::name);
  return verb == all_commands().end() ? overview_man_page() : verb_man_page(*verb);
}

}  // namespace

int run_manual(const Options& options) {
  if (const Status flags = check_manual_flags(options); !flags)
    return report_problems(options, "manual", flags.problems());
  if (options.output.empty()) {
    if (options.json) print_json("manual", JsonObject().add("page", page_of(options)), {});
    else std::cout << page_of(options);
    return 0;
  }
  const Result<std::vector<std::string>> written = write_man_pages(options.output);
  if (!written) return report_problems(options, "manual", written.problems());
  if (options.json) print_json("manual", JsonObject().add("files", *written), {});
  else if (!options.quiet)
    std::cout << "wrote " << written->size() << " pages into " << Terminal::encode_text(options.output).str() << "\n";
  return 0;
}

}  // namespace graphpipe::driver
