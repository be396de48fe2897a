"""What deploy/demo launches: reads its environment, writes into its workdir, and prints for some seconds."""

import os
import platform
import sys
import time

seconds = 5
if "--seconds" in sys.argv:
    seconds = int(sys.argv[sys.argv.index("--seconds") + 1])

greeting = os.environ.get("GREETING", "Hello")
print(f"{greeting}.")
print(f"I am Python {platform.python_version()} in {os.getcwd()}, on host {platform.node()}, as user {os.getuid()}.")

with open("greeting.txt", "w", encoding="utf-8") as file:
    file.write(f"{greeting}, written by {platform.node()}\n")
print("I wrote greeting.txt into my workdir.")

for step in range(1, seconds + 1):
    time.sleep(1)
    print(f"step {step} of {seconds}")
print("Done.")
