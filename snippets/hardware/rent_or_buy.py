"""After how many hours of work is a machine that you buy cheaper than one that you rent? Put in your own prices.

python rent_or_buy.py --buy PRICE --rent PRICE_AN_HOUR --watts W --kwh PRICE
"""

import argparse
import math

parser = argparse.ArgumentParser()
parser.add_argument("--buy", type=float, required=True, help="price of the machine")
parser.add_argument("--resale", type=float, default=0, help="what you sell it for afterwards")
parser.add_argument("--rent", type=float, required=True, help="price of an hour of the rented machine")
parser.add_argument("--watts", type=float, required=True, help="at the wall, while it works")
parser.add_argument("--kwh", type=float, required=True, help="price of a kWh")
parser.add_argument("--speed", type=float, default=1, help="speed of the rented machine against yours")
parser.add_argument("--hours-a-week", type=float, default=40, help="that your machine works")
prices = parser.parse_args()


# --8<-- [start:break_even]
def break_even(buy, resale, rent, watts, kwh, speed):
    """Hours of work after which buying is cheaper, or infinity. A faster rented machine needs fewer hours."""
    saved_an_hour = rent / speed - watts / 1000 * kwh
    return max(buy - resale, 0) / saved_an_hour if saved_an_hour > 0 else math.inf


hours = break_even(prices.buy, prices.resale, prices.rent, prices.watts, prices.kwh, prices.speed)
# --8<-- [end:break_even]
if hours == math.inf:
    print("Rent: an hour of electricity costs you as much as an hour of the rented machine.")
else:
    weeks, each = hours / prices.hours_a_week, prices.hours_a_week
    print(f"Buying is cheaper after {hours:,.0f} hours of work: {weeks:,.0f} weeks at {each:g} hours a week.")
