"""Where in a TOML text each key stands."""

from cronledger.schedule.toml_lines import key_lines


def test_the_line_of_a_key_is_right_however_it_is_written() -> None:
    """Strings over lines, comments, inline tables, dotted and quoted keys mislead nobody."""
    lines = key_lines('''\
text = """
[[job]]
name = "phantom" \\""" """""
raw = \'\'\'
]] # "\'\'\' # comment [x] = {
"a\\u0062" . c = 3.14
list = [ # ]
  1, [2,
  "]"], { k = "}", "l" = [
  5 ] }
]
[[job]] # one
env.X = 1979-05-27 07:32:00
[job.cwd."d.e"]
f = 1
[[ "job" ]]
env = {X = "=", Y.Z = 1}
''')
    assert lines == {
        ("text",): 1,
        ("raw",): 4,
        ("ab",): 6,
        ("ab", "c"): 6,
        ("list",): 7,
        ("list", 0): 8,
        ("list", 1): 8,
        ("list", 1, 0): 8,
        ("list", 1, 1): 9,
        ("list", 2): 9,
        ("list", 2, "k"): 9,
        ("list", 2, "l"): 9,
        ("list", 2, "l", 0): 10,
        ("job",): 12,
        ("job", 0): 12,
        ("job", 0, "env"): 13,
        ("job", 0, "env", "X"): 13,
        ("job", 0, "cwd"): 14,
        ("job", 0, "cwd", "d.e"): 14,
        ("job", 0, "cwd", "d.e", "f"): 15,
        ("job", 1): 16,
        ("job", 1, "env"): 17,
        ("job", 1, "env", "X"): 17,
        ("job", 1, "env", "Y"): 17,
        ("job", 1, "env", "Y", "Z"): 17,
    }
