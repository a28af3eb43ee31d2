#include "cli/verbs.h"

int main(int argc, char** argv) { return tightloop::cli::run(argc, argv); }
